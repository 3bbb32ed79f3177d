-- Returns the server's time in us, the length of the log, whether it still has a given event, and a batch of later
-- events. KEYS: log. ARGV: the id of that event, the size of the batch.
local time = redis.call('TIME')
local there = #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
local events = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
return {string.format('%d%06d', time[1], time[2]), redis.call('XLEN', KEYS[1]), there, events}
