package store

import (
	"embed"

	"github.com/shuntmq/shunt/internal/link"
)

//go:embed lua/*.lua
var lua embed.FS

var (
	built   = make(map[*link.Script][]string) // the files that each script is made of
	altered = make(map[string]string)         // text that stands in for a file's: see Alter
)

// script joins the prelude and the files into one script; what others need stands first.
func script(files ...string) *link.Script { return lean(append([]string{"prelude"}, files...)...) }

// lean is script without the prelude.
func lean(files ...string) *link.Script {
	s := link.NewScript(joined(files))
	built[s] = files
	return s
}

func joined(files []string) (text string) {
	for _, f := range files {
		text += source(f)
	}
	return text
}

// source is the text of a Lua file.
func source(file string) string {
	if text, is := altered[file]; is {
		return text
	}
	b, err := lua.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// The scripts; KEYS, ARGV and replies stand above each in its file.
var (
	Later      = script("later")
	Enter      = script("stamp", "enter")
	Enqueue    = script("ids", "stamp", "enqueue")
	Take       = script("take")
	TakeLease  = script("header", "ids", "leasing", "lease")
	LeaseEach  = script("header", "ids", "leasing", "lease_each")
	Extend     = script("extend")
	Unlease    = lean("unlease")
	Abandon    = script("header", "ids", "leave", "abandon")
	Lapse      = script("header", "trim", "ids", "leave", "ending", "lapse")
	Start      = script("ids", "start")
	Ack        = lean("leave", "first", "ack")
	Settle     = script("leave", "first", "ids", "ending", "settle")
	Follow     = script("ids", "stamp", "leave", "ending", "follow")
	Retry      = script("ids", "leave", "ending", "retry")
	Reject     = script("trim", "ids", "leave", "ending", "reject")
	Promote    = script("promote")
	Register   = script("register")
	Beat       = script("beat")
	SetAbout   = script("about")
	Sweep      = script("ids", "ending", "sweep")
	Reap       = script("header", "trim", "ids", "leave", "ending", "reap")
	Finish     = script("finish")
	Unregister = script("unregister")
	Supersede  = script("supersede")
	Release    = script("header", "ids", "leave", "release")
	Handover   = script("header", "ids", "leave", "handover")
	Yield      = script("yield")
	Revive     = script("ids", "revive")
	Purge      = script("header", "ids", "purge")
	Forget     = script("ids", "ending", "forget")
	Drop       = script("ids", "ending", "drop")
	Seek       = script("header", "seek")
	Browse     = script("header", "browse")
	Hasten     = script("ids", "hasten")
	Cancel     = script("ids", "ending", "cancel")
	Postpone   = script("ids", "postpone")
	Wait       = script("ids", "wait")
	Status     = script("status")
	Unmark     = script("unmark")
	Tally      = script("tally")
	Glance     = script("header", "glance")
)
