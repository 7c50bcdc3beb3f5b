package page

import (
	"context"

	"github.com/shuntmq/shunt"
)

type OrderMail struct {
	Order int
	send  func(to string) error
}

func (m *OrderMail) Channel() string                            { return "order-mails" }
func (m *OrderMail) Marshal() ([]byte, error)                   { return shunt.ToJSON(m) }
func (m *OrderMail) Unmarshal(b []byte) (shunt.IMessage, error) { return shunt.FromJSON(m, b) }
func (m *OrderMail) Resolve(context.Context) error              { return m.send("") }

func checkOut(context.Context, *shunt.Queue, int) {}

func fails(string) error { return nil }
func sends(string) error { return nil }
