package push

import (
	"os"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(asPusher); url != "" {
		pushUntilKilled(url)
		return
	}
	os.Exit(redistest.Main(m))
}
