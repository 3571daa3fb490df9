// SPDX-License-Identifier: Apache-2.0

package lab

import "net/netip"

// Family is an IP family: 4 or 6.
type Family uint8

// The IP families.
const (
	V4 Family = 4
	V6 Family = 6
)

// String returns "v4" or "v6".
func (f Family) String() string {
	if f == V6 {
		return "v6"
	}
	return "v4"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return V4
	}
	return V6
}

// Stack selects the IP families of a lab.
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

// String returns "4", "6" or "dual", the words that ParseStack reads.
func (s Stack) String() string { return stacks.name(s) }

// ParseStack returns the stack of "4", "6" or "dual". Any other word is an error.
func ParseStack(s string) (Stack, error) { return stacks.parse("IP stack", s) }

var stacks = names[Stack]{"4", "6", "dual"}
