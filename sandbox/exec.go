package sandbox

import (
	"context"
	"io"
	"sync"

	"github.com/shuntmq/shunt"
)

// ExitReject is the exit status by which an Exec child rejects its message: EX_DATAERR of <sysexits.h>. The last lines
// of its standard error are the reason.
const ExitReject = 65

// run has a process of its own handle a message. The caller has a place. err is the child's fault or its verdict.
func (s *state) run(ctx context.Context, i *shunt.Info, payload []byte) (v verdict, err error) {
	p, err := s.start(environment(i))
	if err != nil {
		return v, err
	}
	s.gate.pass()
	release := s.watch(ctx, p.stop)
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = p.stdin.Write(payload) // a child need not read it
		_ = p.stdin.Close()
	})
	out, _ := io.ReadAll(io.LimitReader(p.stdout, int64(s.output)+1)) // an error is the end, too
	if len(out) > s.output {
		p.kill()
	}
	<-p.gone // a child that has closed its standard output may go on
	work.Wait()
	cause := release()
	p.join()
	return p.outcome(out, cause)
}

// outcome is what the end of an Exec child means. cause is why it was ended; nil where it was not.
func (p *process) outcome(out []byte, cause error) (v verdict, err error) {
	_, flooded := p.stderr.text()
	switch code := p.cmd.ProcessState.ExitCode(); {
	case len(out) > p.conf.output:
		return v, p.failed(ErrOutput, "%s wrote more than %d bytes to standard output: raise Pool.MaxOutput, or have "+
			"it write less", p.conf.name, p.conf.output)
	case flooded:
		return v, p.failed(ErrExit, "")
	case code == 0:
		if len(out) > 0 {
			v.result = out
		}
		return v, nil
	case code == ExitReject:
		text, _ := p.stderr.text()
		return v, shunt.Reject(reason(text, p.conf.name+" rejected the message"))
	case cause != nil:
		return v, p.failed(cause, "%s was ended before its exit, because %v", p.conf.name, cause)
	}
	return v, p.failed(ErrExit, "%s: %s", p.conf.name, p.status())
}
