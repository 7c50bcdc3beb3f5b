// Package shuntotel traces and measures shunt's messages with OpenTelemetry.
//
//	q := &shunt.Queue{Pool: pool}
//	shuntotel.Instrument(q, shuntotel.Options{}) // the global providers, W3C trace context
//
// An enqueue has a span of kind producer, and puts its context into the message's headers. A handling has a span of
// kind consumer, which links to that context, whichever process it is in. Each attempt is a span of its own. What a
// handler enqueues, by Then or otherwise, is a child of its span.
//
// Names follow OpenTelemetry's semantic conventions for messaging, version 1.41, whose status is Development: a later
// version may rename them, and the CHANGELOG will say so. The README lists all spans, attributes and metrics.
//
// Headers that come with messages are untrusted. Those that are malformed, or longer than 8 KB, are ignored.
package shuntotel
