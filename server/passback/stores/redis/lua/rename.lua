-- Replace the title of a conversation by a client's; its version stays.
-- KEYS state | ARGV title
-- Return whether there is such a conversation.
if redis.call('HEXISTS', KEYS[1], 'version') == 0 then return 0 end
redis.call('HSET', KEYS[1], 'title', ARGV[1], 'named', '1')
return 1
