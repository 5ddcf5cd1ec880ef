-- Write an index that has a server of its own, before the conversation.
-- KEYS index | ARGV member [after]: the milliseconds after which it is due, in the index of those
if ARGV[2] then return redis.call('ZADD', KEYS[1], due_score(now + ARGV[2]), ARGV[1]) end
add_to_index(KEYS[1], ARGV[1])
