-- The server's time in us, how many notes the log has, whether it still has a certain one, and some that came
-- after that.
-- KEYS: log. ARGV: that note's id, how many at most.
local time = redis.call('TIME')
local there = #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
local notes = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
return {string.format('%d%06d', time[1], time[2]), redis.call('XLEN', KEYS[1]), there, notes}
