package serve

import "net/http"

// Recorder notes what was answered.
type Recorder struct {
	http.ResponseWriter
	Status int // 0: nothing yet
	bytes  int64
}

func (r *Recorder) WriteHeader(status int) {
	if r.Status == 0 && status >= 200 {
		r.Status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *Recorder) Write(b []byte) (int, error) {
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

func (r *Recorder) say(status int, text string) {
	r.Header().Set("Content-Type", "text/plain; charset=utf-8")
	r.WriteHeader(status)
	_, _ = r.Write([]byte(text + "\n"))
}

// statusGone is that of requests whose client has left before it had an answer, as web servers have it in their logs.
const statusGone = 499

// Outcome is the status of a request that is over. One without an answer was left by its client, or panicked.
func (r *Recorder) Outcome(of *http.Request) int {
	switch {
	case r.Status != 0:
		return r.Status
	case of.Context().Err() != nil:
		return statusGone
	}
	return http.StatusInternalServerError
}

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
