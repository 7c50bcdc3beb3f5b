package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync"
	"time"
)

// Options are the settings of a Server; the zero value will do.
type Options struct {
	Now   func() time.Time // the clock; nil: time.Now
	RunID string           // what the run_ids of the server and of its restarts are made of
	// MaxBulk is proto-max-bulk-len: a longer argument ends its connection. So does a reply beyond MaxReply, which is
	// client-output-buffer-limit. 0: there is no limit.
	MaxBulk, MaxReply int
	// Heard is called for each command of a client, with its reply, which one that blocks does not have yet.
	Heard func(session string, args []string, reply any)
}

// Server is a Redis. Its methods may be called from any goroutine, but not from a session's functions.
type Server struct {
	now func() time.Time

	mu       sync.Mutex
	runID    string
	runs     int // how many times it was started
	started  time.Time
	ahead    time.Duration // what its clock was stepped
	at       int64         // ms since 1970 of the command under way; 0: not asked yet
	keys     dict[*entry]
	sessions dict[*Session] // by their ids
	lastID   int
	hand     *Session // which Do uses
	topics   topics
	waiting  map[string][]*Session // blocked, by key, the first one first
	ready    []string              // keys that came to be while somebody waited for them
	resumed  []*Session            // no longer blocked, and with commands that have queued up
	scripts  *scripts
	calls    []int // of each command
	password string
	most     int // maxmemory
	maxBulk  int
	maxReply int
	out      []byte
	heard    func(session string, args []string, reply any)

	full, readOnly, loading bool
}

// New returns an empty server.
func New(o Options) *Server {
	s := &Server{now: o.Now, runID: o.RunID, maxBulk: o.MaxBulk, maxReply: o.MaxReply, heard: o.Heard}
	if s.now == nil {
		s.now = time.Now
	}
	s.start()
	return s
}

// start begins a new life without data.
func (s *Server) start() {
	s.runs++
	s.started = s.now()
	s.keys, s.sessions = dict[*entry]{}, dict[*Session]{}
	s.topics = topics{}
	s.waiting, s.ready, s.resumed = make(map[string][]*Session), nil, nil
	s.scripts = newScripts(s)
	s.calls = make([]int, len(names))
	s.hand = &Session{s: s, hand: true, authed: true}
}

// id is the run_id, another one in each life.
func (s *Server) id() string {
	sum := sha1.Sum([]byte(s.runID + " " + strconv.Itoa(s.runs)))
	return hex.EncodeToString(sum[:])
}

// ms is the server's time in ms since 1970, the same throughout a command.
func (s *Server) ms() int64 {
	if s.at == 0 {
		s.at = s.clock().UnixMilli()
	}
	return s.at
}

func (s *Server) clock() time.Time { return s.now().Add(s.ahead) }

// Step sets the server's clock forward, or back: what keys have left to live, and blocked commands, changes with it.
func (s *Server) Step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	s.at = 0
	for _, c := range s.sessions.all() {
		if c.wait != nil && c.wait.until > 0 {
			s.arm(c)
		}
	}
}

// Full has the server refuse what needs memory, as one beyond its maxmemory does.
func (s *Server) Full(is bool) { s.fault(&s.full, is) }

// ReadOnly has the server refuse writes, as a replica does.
func (s *Server) ReadOnly(is bool) { s.fault(&s.readOnly, is) }

// Loading has the server refuse nearly all, as one does that reads its data after a start.
func (s *Server) Loading(is bool) { s.fault(&s.loading, is) }

func (s *Server) fault(f *bool, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*f = is
}

// FlushScripts forgets all scripts.
func (s *Server) FlushScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts.flush()
}

// Snapshot is the data of a server at one moment. It does not change, and may be used more than once.
type Snapshot struct{ keys []entry }

// Snapshot copies the data.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := &Snapshot{}
	for _, e := range s.keys.all() {
		kept.keys = append(kept.keys, e.clone())
	}
	return kept
}

// Restart has the server come back with the data of a snapshot, or with none if that is nil, and with another run_id.
// Sessions are hung up, scripts and subscriptions forgotten. Faults and the clock's steps stay as they are.
func (s *Server) Restart(from *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sessions.all() {
		s.hangUp(c)
	}
	s.start()
	if from == nil {
		return
	}
	for _, e := range from.keys {
		e = e.clone()
		s.keys.set(e.key, &e)
	}
}

// Commands counts the commands that were executed in this life, those inside scripts included.
func (s *Server) Commands() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed()
}

func (s *Server) executed() (n int) {
	for _, calls := range s.calls {
		n += calls
	}
	return n
}
