-- Returns the stored value if it satisfies the lookup; else takes the lock, or returns its remaining lease. A value
-- of another type counts as absent. KEYS: value, lock, waiters. ARGV: now, the oldest stamp of a fresh value, the
-- oldest stamp of any value (0: none), the token to lock with (empty: no lock), the lease in ms, the channel of the
-- caller.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'string' then
  local state, stamp, fresh = string.match(value, '^S1 (%a) (%d+) (%d+) ')
  stamp, fresh = tonumber(stamp), tonumber(fresh)
  local oldest, since = tonumber(ARGV[2]), tonumber(ARGV[3])
  -- Ignore an invalid stamp.
  if stamp and stamp < 2 ^ 53 - 1 and ((state == 'f' and fresh > tonumber(ARGV[1]) and stamp >= oldest) or (since > 0 and stamp >= since)) then
    return {'found', value, 0}
  end
else
  value = false
end
if ARGV[4] == '' or redis.call('SET', KEYS[2], ARGV[4], 'NX', 'PX', ARGV[5]) then
  return {'ours', value, 0}
end
if type(redis.pcall('SADD', KEYS[3], ARGV[6])) ~= 'number' then
  redis.call('DEL', KEYS[3])
  redis.call('SADD', KEYS[3], ARGV[6])
end
redis.call('PEXPIRE', KEYS[3], 2 * ARGV[5])
local left = redis.call('PTTL', KEYS[2])
if left < 0 then
  -- Every lock has an end.
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
  left = tonumber(ARGV[5])
end
return {'theirs', value, left}
