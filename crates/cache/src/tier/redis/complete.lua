-- Ends a lease that has not been lost: stores the value, releases the lock, wakes the waiters. KEYS: value, lock,
-- waiters. ARGV: the token (empty: no lock was taken), the value (empty: none), its time to live in ms (0: for
-- ever), the message to waiters.
if ARGV[1] ~= '' and redis.pcall('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
if ARGV[2] ~= '' then
  local stored = ARGV[1] == '' and redis.pcall('GETRANGE', KEYS[1], 0, 63)
  local newer = type(stored) == 'string' and tonumber(string.match(stored, '^S1 %a (%d+) ') or 0)
  -- A stamp in the future is invalid.
  local time = redis.call('TIME')
  if newer and newer <= (time[1] + 1) * 1000000 and newer > tonumber(string.match(ARGV[2], '^S1 %a (%d+) ')) then
    return 0
  end
  if ARGV[3] == '0' then
    redis.call('SET', KEYS[1], ARGV[2])
  else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  end
end
if ARGV[1] ~= '' then
  redis.call('DEL', KEYS[2])
  for _, channel in ipairs(redis.pcall('SMEMBERS', KEYS[3])) do
    redis.call('PUBLISH', channel, ARGV[4])
  end
  redis.call('DEL', KEYS[3])
end
return 1
