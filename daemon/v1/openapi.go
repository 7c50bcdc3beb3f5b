package v1

import (
	_ "embed"
	"net/http"
)

// Document is the OpenAPI 3.1 document of the interface, as GET /v1/openapi.json serves it.
//
//go:embed openapi.json
var Document []byte

func (a *API) openapi(c *call) {
	c.noParameters()
	if !a.none(c) || c.bad() {
		return
	}
	_ = c.send(http.StatusOK, asJSON, Document)
}
