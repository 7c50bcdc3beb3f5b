package v1

import (
	"fmt"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A list is whole although many that were cancelled lie before the others.
func TestListBehindCancelledOnes(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const n = 40
	for i := range n {
		s.want(201, "POST", fmt.Sprintf("/q/messages?id=%d", i), "x")
	}
	for i := range n / 2 {
		s.want(200, "POST", fmt.Sprintf("/q/messages/id:%d/cancel", i), "")
	}
	seen := 0
	for offset := 0.0; ; {
		m := s.want(200, "GET", fmt.Sprintf("/q/messages?limit=100&offset=%v", offset), "").json()
		seen += len(m["messages"].([]any))
		next, more := m["next_offset"].(float64)
		if !more {
			break
		}
		offset = next
	}
	if seen != n/2 {
		t.Errorf("%d are listed, %d wait", seen, n/2)
	}
}
