-- Adds an event to the log and publishes it. Returns the server's time in us. KEYS: log. ARGV: the channel of
-- events, the maximum length of the log, the node, the event.
local time = redis.call('TIME')
local at = string.format('%d%06d', time[1], time[2])
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'at', at, 'node', ARGV[3], 'event', ARGV[4])
redis.call('PUBLISH', ARGV[1], table.concat({id, at, ARGV[3], ARGV[4]}, ' '))
return at
