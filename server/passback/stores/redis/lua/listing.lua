-- List a conversation under this microsecond among those of its owner. With a `ttl`, in
-- milliseconds, the list expires after it, and conversations that have been there for longer leave
-- it: a few at a time, more than come.
local function list_conversation(list, member, ttl)
  redis.call('ZADD', list, microseconds(), member)
  if ttl == '' then
    redis.call('PERSIST', list)
    return
  end
  local oldest = '(' .. digits(microseconds() - ttl * 1000)
  local gone = redis.call('ZRANGEBYSCORE', list, '-inf', oldest, 'LIMIT', 0, 20)
  if #gone > 0 then redis.call('ZREM', list, unpack(gone)) end
  redis.call('PEXPIRE', list, ttl)
end
