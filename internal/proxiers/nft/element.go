// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/lab"
)

// Element is an element of a set, or of a map if it has a value.
type Element struct {
	In         string // the set or map
	Key, Value string
	Comment    string
	// Expires is the time after which an element expires, if it differs from the timeout of its set.
	Expires time.Duration
}

// Object returns the element for a transaction.
func (e Element) Object() *knftables.Element {
	o := &knftables.Element{Key: []string{e.Key}, Comment: comment(e.Comment)}
	if e.Expires > 0 {
		o.Key[0] += fmt.Sprintf(" expires %dms", e.Expires.Milliseconds()) // knftables has no field for it
	}
	if e.Value == "" {
		o.Set = e.In
	} else {
		o.Map, o.Value = e.In, []string{e.Value}
	}
	return o
}

// maxComment is the longest comment that nft accepts. The names of a Service and its port together may be longer.
const maxComment = 127

// comment returns a comment, nil for an empty one.
func comment(text string) *string {
	if text == "" {
		return nil
	}
	text = text[:min(len(text), maxComment)]
	return &text
}

// Word returns the name of a family in rules, and of its tables.
func Word(f lab.Family) string {
	if f == lab.V6 {
		return "ip6"
	}
	return "ip"
}

// AddrType returns the type of a family's addresses.
func AddrType(f lab.Family) string { return "ip" + f.String() + "_addr" }
