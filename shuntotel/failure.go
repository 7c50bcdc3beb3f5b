package shuntotel

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// errNoReturn stands for the error of a func that has panicked, or has called runtime.Goexit.
var errNoReturn = errors.New("shuntotel: it has not returned: it panicked, or called runtime.Goexit")

// failures names the errors that error.type has a word for.
var failures = []struct {
	err  error
	name string
}{
	{errNoReturn, "no-return"},
	{shunt.ErrTimeout, "timeout"}, {shunt.ErrDeadline, "deadline"}, {shunt.ErrLeaseLost, "lease-lost"},
	{shunt.ErrShutdown, "shutdown"}, {shunt.ErrCancelled, "cancelled"},
	{shunt.ErrUnknown, "unknown-outcome"}, {shunt.ErrFull, "full"}, {shunt.ErrDuplicate, "duplicate"},
	{shunt.ErrTooLarge, "too-large"}, {shunt.ErrClosed, "closed"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"},
}

// failureOf names an error for error.type: few names, whatever its text. Methods of the error may panic.
func failureOf(err error) (name string) {
	defer func() {
		if recover() != nil {
			name = semconv.ErrorTypeOther.Value.AsString()
		}
	}()
	var p *shunt.PanicError
	if errors.As(err, &p) {
		return "panic"
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return f.name
		}
	}
	return clean(semconv.ErrorType(unmarked(err)).Value.AsString())
}

// unmarked is the error within Reject and RetryAfter, whose types are not a user's.
func unmarked(err error) error {
	for {
		within := errors.Unwrap(err)
		if within == nil || !strings.HasPrefix(reflect.TypeOf(err).PkgPath(), "github.com/shuntmq/shunt/internal/") {
			return err
		}
		err = within
	}
}

// textOf is an error's text. Its method may panic.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "the error's text panicked"
		}
	}()
	return clean(err.Error())
}

// maxText bounds what a span gets of a text, in bytes.
const maxText = 1 << 10

// clean bounds a text, and makes it UTF-8: an exporter drops a whole batch of spans for one string that is not.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// fail records an error on a span.
func fail(span trace.Span, err error, name string, more ...attribute.KeyValue) {
	if !span.IsRecording() {
		return
	}
	text := textOf(err)
	span.SetStatus(codes.Error, text)
	span.SetAttributes(semconv.ErrorTypeKey.String(name))
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(exception(err, name, text, more)...))
}

// exception is the attributes of an error's event.
func exception(err error, name, text string, more []attribute.KeyValue) []attribute.KeyValue {
	attrs := append(more, semconv.ExceptionType(name), semconv.ExceptionMessage(text))
	var p *shunt.PanicError
	if name == "panic" && errors.As(err, &p) && len(p.Stack) > 0 {
		stack := p.Stack[:min(len(p.Stack), 8*maxText)]
		attrs = append(attrs, semconv.ExceptionStacktrace(strings.ToValidUTF8(string(stack), "\uFFFD")))
	}
	return attrs
}

// The types of the errors by which handlers choose a verdict, as errors.As wants them.
var (
	snoozed  = reflect.TypeOf(shunt.Snooze(0))
	rejected = reflect.TypeOf(shunt.Reject(nil))
)

// verdictOf says what a handler's end asks for. After "fail" the message is tried again, or is dead: its Queue decides.
func verdictOf(ctx context.Context, err error) (verdict string) {
	if err == nil {
		return "ack"
	}
	defer func() {
		if recover() != nil {
			verdict = "fail"
		}
	}()
	switch context.Cause(ctx) {
	case shunt.ErrLeaseLost, shunt.ErrShutdown:
		return "release"
	case shunt.ErrCancelled:
		return "cancel"
	case shunt.ErrDeadline:
		return "reject"
	}
	switch {
	case errors.As(err, reflect.New(rejected).Interface()):
		return "reject"
	case errors.As(err, reflect.New(snoozed).Interface()):
		return "snooze"
	}
	return "fail"
}
