package redis

import (
	flags "flag"
	"os"
	"strconv"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// In -short rapid checks a fifth, and these tests want to have met everything: the fifth is as much as all else is.
func TestMain(m *testing.M) {
	flags.Parse()
	if checks := flags.Lookup("rapid.checks"); testing.Short() && checks.Value.String() == checks.DefValue {
		if n, err := strconv.Atoi(checks.DefValue); err == nil {
			_ = flags.Set("rapid.checks", strconv.Itoa(5*n))
		}
	}
	os.Exit(redistest.Main(m))
}
