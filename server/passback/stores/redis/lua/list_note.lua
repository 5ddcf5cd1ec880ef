-- List a conversation that is about to change, where the list has a server of its own.
-- KEYS list | ARGV member ttl
list_conversation(KEYS[1], ARGV[1], ARGV[2])
return 1
