package store

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/shuntmq/shunt/internal/link"
)

// CheckChannel says what is wrong with a channel's name.
func CheckChannel(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("shunt: the channel's name is empty: Channel() returns 1 to 200 bytes")
	case len(name) > 200:
		return fmt.Errorf("shunt: the channel's name %.40q… has %d bytes: at most 200", name, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("shunt: the channel's name %.80q is not UTF-8", name)
	}
	for _, r := range name {
		if r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r) {
			return fmt.Errorf("shunt: the channel's name %.80q contains %q: no braces, blanks or control characters",
				name, r)
		}
	}
	return nil
}

// AddChannel lists a channel for operators.
func AddChannel(c *link.Call, channel string) { c.Add("SADD", ChannelsKey, channel) }
