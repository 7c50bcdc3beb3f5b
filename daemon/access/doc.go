// Package access keeps the tokens of a daemon, and limits how many requests each may make.
//
// A token is for one pool, one namespace and one role. Redis has its SHA-256 and never the token itself, so nobody who
// reads Redis can use one. A token is 20 bytes or more, and one that Mint makes has 80 random bits.
//
// Checking a token asks Redis nothing while the Store hears the hints of other processes: it keeps the tokens of the
// namespaces that it has met, and who changes them publishes a hint. A flood of unknown tokens is answered from there,
// too. Where the hints cannot be heard, what is kept is believed for less than a second.
//
// All keys share the hash tag {shuntd}:
//
//	{shuntd}.namespaces              set of pool/namespace that have tokens
//	{shuntd}.tokens.POOL/NAMESPACE   hash: SHA-256 in hex → the Token as JSON
//	{shuntd}.limits                  hash: POOL/NAMESPACE/SHA-256 → the Limit as JSON
//	{shuntd}.count.POOL/NAMESPACE/SHA-256.r and .w
//	                                 hash: the window that runs, and its requests
//	{shuntd}.hints                   channel on which changed keys are named
package access
