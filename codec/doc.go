// Package codec changes the payloads of a shunt.Queue on their way to Redis and back, as a chain of layers. [AES]
// encrypts, [Claim] keeps large payloads in a store and their name in Redis, and module codec/zstd compresses.
//
//	chain := &codec.Chain{Layers: []codec.Layer{
//		&zstd.Layer{},
//		&codec.AES{Keys: []codec.Key{{ID: "2026", Secret: secret}}},
//		&codec.Claim{Store: &codec.Dir{Path: "/var/lib/jobs"}},
//	}}
//	payloads, err := chain.Payloads()
//	q := &shunt.Queue{Pool: pool, Payloads: payloads}
//
// The header shunt-encoding of a message says which layers its payload went through, as in
//
//	shunt-encoding: zstd,aes=2026,claim=5f0c…/01KAV9…/9a41…
//
// So a payload is read as it was written, by whichever chain that was, and one without the header is read as it is.
// Nothing is guessed from a payload's bytes: whatever a user enqueues comes back.
//
// # What is not covered
//
// Headers, IDs, type names, and the text of a failure lie in Redis in the clear. So do results: Seal and Open do the
// same for them. Who reads the sizes of messages that were compressed before they were encrypted learns something of
// them: leave compression out where others can put text of theirs into your payloads.
package codec
