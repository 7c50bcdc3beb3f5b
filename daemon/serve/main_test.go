package serve

import (
	"os"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		inChild()
		return
	}
	os.Exit(redistest.Main(m))
}
