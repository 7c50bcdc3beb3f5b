package recur

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/shuntmq/shunt"
)

// Option changes what Add defines.
type Option func(*definition) error

// definition is what Add is asked for.
type definition struct {
	policy  Policy
	options []shunt.Option
}

// define applies the options to the defaults.
func define(opts []Option) (definition, error) {
	d := definition{policy: One}
	for i, o := range opts {
		if o == nil {
			return d, fmt.Errorf("option %d of %d is nil", i+1, len(opts))
		}
		if err := o(&d); err != nil {
			return d, err
		}
	}
	return d, nil
}

// Missed sets what happens to missed ticks. The default is One.
func Missed(p Policy) Option {
	return func(d *definition) error {
		d.policy = p
		return p.check()
	}
}

// With enqueues each message with options of package shunt: any but In, At, Deadline and RefTo. With shunt.ID, a tick
// enqueues nothing while the message of an earlier one lives. An Event of kind shunt.EventDuplicate reports that.
func With(options ...shunt.Option) Option {
	return func(d *definition) error {
		d.options = append(d.options, options...)
		return nil
	}
}

func checkName(name string) error {
	if len(name) < 1 || len(name) > 200 || !utf8.ValidString(name) {
		return fmt.Errorf("recur: the name %.80q has %d bytes: want 1 to 200, in UTF-8", name, len(name))
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("recur: the name %.80q contains %q: want only what can be printed", name, r)
		}
	}
	return nil
}
