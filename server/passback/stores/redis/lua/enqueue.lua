-- Add a post to the queue, and open the log of the run that it will be.
-- KEYS state messages receipts runs queue log [due list]
-- ARGV run_id post limit stops due_in member channel ttl log_ttl list_member list_ttl last record
--   (receipt value)*
-- Return 'queued', 'full', or 'changed' when the post has to be judged again.
local FIRST_RECEIPT = 14  -- its place in ARGV
local run_id, post, limit, stops, due_in, member, channel = unpack(ARGV, 1, 7)
local ttl, log_ttl, list_member, list_ttl, last, record = unpack(ARGV, 8, 13)

local running, message_count = unpack(redis.call('HMGET', keys.state, 'running', 'message_count'))
local waiting = redis.call('LRANGE', keys.queue, 0, -1)
for _, entry in ipairs(waiting) do
  if is_entry_of(entry, run_id) then return 'queued' end
end
-- a repeat whose run has left the queue
if redis.call('EXISTS', keys.log) == 1 then return 'queued' end
if running ~= '1' and #waiting == 0 then return 'changed' end
for i = FIRST_RECEIPT, #ARGV, 2 do
  if redis.call('HEXISTS', keys.receipts, ARGV[i]) == 1 then return 'changed' end
end
if #waiting >= tonumber(limit) then return 'full' end
check_parts(tonumber(message_count))
-- nothing above this line writes

local epoch = redis.call('HINCRBY', keys.state, 'newest_epoch', 1)
redis.call('HSET', keys.state, 'updated', microseconds())
if stops == '1' and running == '1' then redis.call('HSET', keys.state, 'cancelled', '1') end
redis.call('RPUSH', keys.queue, run_id .. '\0' .. post)
for i = FIRST_RECEIPT, #ARGV, 2 do redis.call('HSET', keys.receipts, ARGV[i], ARGV[i + 1]) end
if record ~= '' then redis.call('XADD', keys.log, epoch .. '-' .. last, 'events', record) end
if keys.list then list_conversation(keys.list, list_member, list_ttl) end
if keys.due then redis.call('ZADD', keys.due, 'NX', time_in(due_in), member) end
set_ttl(ttl)
set_log_ttl(run_id, log_ttl)
redis.call('PUBLISH', channel, '')
return 'queued'
