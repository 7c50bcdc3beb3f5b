// Package redis is a small, exact Redis in memory, for the simulation. It knows the commands that shunt, its tests and
// operators use, and Lua scripts. It answers as Redis 7.0.15 does, to the text of an error. Differential tests hold it
// against a real redis-server.
//
// It has no network and starts no goroutine. A Session stands for a connection: Command executes at once, and the reply
// goes to the session's send function. A command is atomic, and so is a script. Where Redis may choose an order, of
// keys, fields or members, it is here that of their coming, so that the same commands always have the same replies.
//
// It differs from Redis in this: there is one database; memory is estimated; a script cannot run too long; a blocked
// command's timeout is exact; and numbers that Lua itself turns into text are not rounded to 14 digits.
package redis
