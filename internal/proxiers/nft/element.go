// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/lab"
)

// Element is an element of a set, or of a map if it has a value.
type Element struct {
	In         string // the set or map
	Key, Value string
	Comment    string
}

// Object returns the element as knftables has it.
func (e Element) Object() *knftables.Element {
	o := &knftables.Element{Key: []string{e.Key}, Comment: Comment(e.Comment)}
	if e.Value == "" {
		o.Set = e.In
	} else {
		o.Map, o.Value = e.In, []string{e.Value}
	}
	return o
}

// maxComment is the longest comment that nft takes, without the final zero; a Service's name and that of its port may
// be longer.
const maxComment = 127

// Comment returns a comment, nil for an empty one.
func Comment(text string) *string {
	if text == "" {
		return nil
	}
	text = text[:min(len(text), maxComment)]
	return &text
}

// Destroy deletes the table, whether it exists or not.
func Destroy(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
}

// Word returns the name of a family in rules.
func Word(f lab.Family) string {
	if f == lab.V6 {
		return "ip6"
	}
	return "ip"
}

// AddrType returns the type of a family's addresses.
func AddrType(f lab.Family) string {
	if f == lab.V6 {
		return "ipv6_addr"
	}
	return "ipv4_addr"
}
