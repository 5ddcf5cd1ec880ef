-- KEYS state
-- Return the title of a conversation, or false if there is no such conversation.
local version, title = unpack(redis.call('HMGET', KEYS[1], 'version', 'title'))
return version and (title or '')
