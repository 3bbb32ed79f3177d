-- Outdates what is stored and what is being loaded, and stores something else, if there is something.
-- KEYS: value, lock, who waits. ARGV: `hard`, `soft` or `written`, what to tell who waits, the value, when it
-- goes in ms (0: never).
if ARGV[1] == 'hard' then
  redis.call('DEL', KEYS[1])
elseif ARGV[1] == 'soft' then
  if redis.call('GETRANGE', KEYS[1], 0, 3) == 'S1 f' then
    redis.call('SETRANGE', KEYS[1], 3, 'x')
  end
elseif ARGV[4] == '0' then
  redis.call('SET', KEYS[1], ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PXAT', ARGV[4])
end
redis.call('DEL', KEYS[2])
for _, channel in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  redis.call('PUBLISH', channel, ARGV[2])
end
return redis.call('DEL', KEYS[3])
