-- Gives what is stored, if it will do; else whose turn it is to load.
-- KEYS: value, lock, who waits. ARGV: now, the oldest stamp that will do, a stamp from which on anything will
-- do (0: none), the token to lock with (empty: no lock), the lease in ms, the channel of who asks.
local value = redis.call('GET', KEYS[1])
if value then
  local state, stamp, fresh = string.match(value, '^S1 (%a) (%d+) (%d+) ')
  stamp, fresh = tonumber(stamp), tonumber(fresh)
  local oldest, since = tonumber(ARGV[2]), tonumber(ARGV[3])
  if stamp and ((state == 'f' and fresh > tonumber(ARGV[1]) and stamp >= oldest) or (since > 0 and stamp >= since)) then
    return {'found', value, 0}
  end
end
if ARGV[4] == '' or redis.call('SET', KEYS[2], ARGV[4], 'NX', 'PX', ARGV[5]) then
  return {'ours', value, 0}
end
redis.call('SADD', KEYS[3], ARGV[6])
redis.call('PEXPIRE', KEYS[3], 2 * ARGV[5])
return {'theirs', value, redis.call('PTTL', KEYS[2])}
