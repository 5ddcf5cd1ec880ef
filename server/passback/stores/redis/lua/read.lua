-- Read a conversation: its READ_FIELDS, and more of the state's fields.
-- KEYS state messages | ARGV within queue whole field*
-- `within`: the messages of the view if these have at most so many bytes; empty for none.
-- `queue`: 1 for the records of the queue. `whole`: 1 for all fields of the state, too.
-- Return the time, and then what was read; no more if there is no such conversation.
for i = 4, #ARGV do READ_FIELDS[#READ_FIELDS + 1] = ARGV[i] end
local found = redis.call('HMGET', KEYS[1], unpack(READ_FIELDS))
local version, layout, queue, view, view_bytes = unpack(found)
if not version then return {now} end
if layout ~= LAYOUT then return redis.error_reply('PBLAYOUT the conversation is of another one') end
local messages, records, names = false, {}, {}
if ARGV[1] ~= '' and tonumber(view_bytes) <= tonumber(ARGV[1]) then
  messages = read_spans(KEYS[2], view, math.huge, math.huge)
end
if ARGV[2] ~= '1' then queue = '' end
for run in string.gmatch(queue, '%C+') do names[#names + 1] = 'queue:' .. run end
if names[1] then records = redis.call('HMGET', KEYS[1], unpack(names)) end
local all = ARGV[3] == '1' and redis.call('HGETALL', KEYS[1])
return {now, found, messages, records, all}
