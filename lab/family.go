// SPDX-License-Identifier: Apache-2.0

package lab

import "net/netip"

// Family is an IP family, numbered as people call it.
type Family uint8

// The two families.
const (
	V4 Family = 4
	V6 Family = 6
)

// String is "v4" or "v6".
func (f Family) String() string {
	if f == V6 {
		return "v6"
	}
	return "v4"
}

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return V4
	}
	return V6
}

// Stack says which families a lab has.
type Stack uint8

// The stacks. The zero value is IPv4 alone.
const (
	IPv4 Stack = iota
	IPv6
	Dual
)

// Families lists the families of the stack, the primary one first.
func (s Stack) Families() []Family {
	switch s {
	case IPv6:
		return []Family{V6}
	case Dual:
		return []Family{V4, V6}
	default:
		return []Family{V4}
	}
}

// String is "4", "6" or "dual", as ParseStack takes it.
func (s Stack) String() string { return stacks.name(s) }

// ParseStack reads "4", "6" or "dual".
func ParseStack(s string) (Stack, error) { return stacks.parse("IP stack", s) }

var stacks = names[Stack]{"4", "6", "dual"}
