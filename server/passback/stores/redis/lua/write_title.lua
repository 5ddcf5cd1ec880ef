-- Record the model call for the title of a conversation, and the title unless a client gave one.
-- The first call counts; the version stays.
-- KEYS state | ARGV created title title_call
-- `created`: milliseconds. Return whether there is such a conversation.
local created, named, known_call = unpack(
  redis.call('HMGET', KEYS[1], 'created', 'named', 'title_call'))
if not created or math.floor(created / 1000) ~= tonumber(ARGV[1]) then return 0 end
if known_call then return 1 end
redis.call('HSET', KEYS[1], 'title_call', ARGV[3])
if ARGV[2] ~= '' and named ~= '1' then redis.call('HSET', KEYS[1], 'title', ARGV[2]) end
return 1
