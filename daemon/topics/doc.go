// Package topics is what the protocols without namespaces and tokens share. A topic is a channel, after a prefix that
// is configured. A job is found by its id alone, which in these protocols names no topic.
//
// In shunt an id is one of a channel. So a process remembers where it has pushed and popped ids lately. Of any other id
// it asks all channels of the prefix. The memory is a hint: nothing is lost with it.
//
// A topic has no slash. So without a prefix, too, its clients do not reach the channels of namespaces, which tokens
// guard.
package topics
