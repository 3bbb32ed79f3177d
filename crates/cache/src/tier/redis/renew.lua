-- Renews a lease that has not been lost. KEYS: lock. ARGV: the token, the lease in ms.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
