package redis

import (
	"testing"

	"github.com/shuntmq/shunt/internal/store"
)

// A plain command through a session: a push and a move in turns.
func BenchmarkCommand(b *testing.B) {
	s := New(Options{})
	c := s.Connect(func([]byte) {}, nil)
	push := bytesOf([]string{"LPUSH", "a", "some text of an element, not too short"})
	pop := bytesOf([]string{"RPOP", "a"})
	for i := range b.N {
		if i%2 == 0 {
			c.Command(push)
		} else {
			c.Command(pop)
		}
	}
}

// Scripts of the store, as a worker sends them.
func BenchmarkScript(b *testing.B) {
	words := scriptWords()
	k := store.KeysOf("c")
	for _, bench := range []struct {
		name       string
		text, lays string
		args       []string
	}{
		{"Beat", textOf(store.Beat), "", []string{"1", k.Receivers, words["name"][0], "60000"}},
		{"Take", textOf(store.Take), k.Prepare, []string{"3", k.Receivers, k.Prepare, "doing", "1"}},
		{"Ack", textOf(store.Ack), "doing", []string{"1", "doing", "1", words["head"][0], words["head"][0]}},
		{"Retry", textOf(store.Retry), "doing", []string{"3", k.Receivers, "doing", k.Delay, "60000",
			words["el"][0], words["el"][1]}},
		{"Promote", textOf(store.Promote), "", []string{"4", k.Receivers, k.Delay, k.Prepare, k.Leased, "100",
			"100000"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := New(Options{})
			last := ""
			c := s.Connect(func(reply []byte) { last = string(reply[:1]) }, nil)
			sha := shaOf(bench.text)
			c.Command(bytesOf([]string{"SCRIPT", "LOAD", bench.text}))
			args := bytesOf(append([]string{"EVALSHA", sha}, bench.args...))
			lay := bytesOf([]string{"LPUSH", bench.lays, words["el"][0]})
			del := bytesOf([]string{"DEL", "doing"})
			for range b.N {
				if bench.lays != "" {
					c.Command(lay)
				}
				if c.Command(args); last == "-" {
					b.Fatal("it fails")
				}
				if bench.name == "Take" {
					c.Command(del)
				}
			}

		})
	}
}
