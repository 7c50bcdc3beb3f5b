package redis

import (
	"os"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
