-- Outdates the stored value and the load in flight, unless they began after the event, and may store another value.
-- KEYS: value, lock, waiters. ARGV: `hard`, `soft` or `written`, the message to waiters, the value, its time to live
-- in ms (0: for ever), the time of the event.
local at = tonumber(ARGV[5])
local value = redis.pcall('GETRANGE', KEYS[1], 0, 63)
local began = type(value) == 'string' and tonumber(string.match(value, '^S1 %a %d+ %d+ (%d+) ') or 0) or 0
if began < at then
  if ARGV[1] == 'hard' then
    redis.call('DEL', KEYS[1])
  elseif ARGV[1] == 'soft' then
    if type(value) == 'string' and string.sub(value, 1, 4) == 'S1 f' then
      redis.call('SETRANGE', KEYS[1], 3, 'x')
    end
  elseif ARGV[4] == '0' then
    redis.call('SET', KEYS[1], ARGV[3])
  else
    redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  end
end
local lock = redis.pcall('GET', KEYS[2])
if type(lock) == 'string' and tonumber(string.match(lock, '%-(%d+)$') or 0) >= at then
  return 0
end
redis.call('DEL', KEYS[2])
-- A name of another type has no members.
for _, channel in ipairs(redis.pcall('SMEMBERS', KEYS[3])) do
  redis.call('PUBLISH', channel, ARGV[2])
end
return redis.call('DEL', KEYS[3])
