-- Replace the settings of a conversation; its version stays.
-- KEYS state | ARGV settings
-- Return whether there is such a conversation.
if redis.call('HEXISTS', KEYS[1], 'version') == 0 then return 0 end
redis.call('HSET', KEYS[1], 'settings', ARGV[1])
return 1
