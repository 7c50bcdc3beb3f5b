package daemon

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// deadlines notes until when an answer may be written.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.last = t; return nil }

// A reload that lets requests wait longer also lets them take longer. Over HTTP/2 the end of the time for writing would
// end a request that still waits.
func TestLongerWaitsAfterAReload(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL())
	c := r.Config
	c.Limits.MaxWait = 5 * time.Hour
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api", "admin"} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r.fronts[name].(http.Handler).ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
		if left := time.Until(w.last); left < c.Limits.MaxWait {
			t.Errorf("%s: a request has %v, and may wait for %v", name, left, c.Limits.MaxWait)
		}
	}
}
