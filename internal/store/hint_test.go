package store

import (
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
)

func TestParseHint(t *testing.T) {
	t.Parallel()
	serial := element.NewSerial()
	for payload, want := range map[string]Hint{
		"":                             {},
		"anything":                     {},
		"15":                           {Kind: HintDue, In: 15 * time.Millisecond},
		"-3":                           {Kind: HintDue, In: -3 * time.Millisecond},
		"9223372036854775807":          {Kind: HintDue, In: maxAhead},
		"cancel " + string(serial[:]):  {Kind: HintCancelled, Serial: serial},
		"cancel " + string(serial[:4]): {},
	} {
		if got := ParseHint(payload); got != want {
			t.Errorf("%q: %+v, want %+v", payload, got, want)
		}
	}
}
