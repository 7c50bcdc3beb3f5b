package v1

import (
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// The answer to a batch names the message that is in doubt. After another answer the client may repeat the batch.
func TestBatchInDoubt(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s := siteOn(t, p.URL())
	push := redistest.Command("LPUSH", s.ns+"/q")
	p.On(push, 1, redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'"))
	p.On(push, 2, redistest.CutAfter)
	one := `{"payload":"` + strings.Repeat("a", 700<<10) + `"}` // two chunks
	r := s.json("POST", "/q/messages:batch", "["+one+","+one+"]")
	if r.status != 503 || !r.is("unknown-outcome") {
		t.Errorf("%d %.300s", r.status, r.body)
	}
	states := s.do("GET", "/q/stats", "").json()["states"].(map[string]any)
	if n := states["prepare"].(map[string]any)["count"]; n != 1.0 {
		t.Errorf("%v are there", n)
	}
}
