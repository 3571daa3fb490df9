// SPDX-License-Identifier: Apache-2.0

// Package ipset programs the kernel's IP sets over netlink (linux/netfilter/ipset/ip_set.h). Many entries travel in one
// message, so that a change costs what is changed and no process is started for it.
package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// Type is what a set holds.
type Type string

// The types in use, by what an entry is made of.
const (
	IP        Type = "hash:ip"          // Addr
	IPPort    Type = "hash:ip,port"     // Addr, Proto, Port
	IPPortIP  Type = "hash:ip,port,ip"  // Addr, Proto, Port, and Source, a single address
	IPPortNet Type = "hash:ip,port,net" // Addr, Proto, Port, and Source
	Net       Type = "hash:net"         // Range, and NoMatch
	Port      Type = "bitmap:port"      // Port; a set of it has no family
)

// revision is the oldest variant of the type that does what is used here; kernels know all from some oldest one on.
func (t Type) revision() uint8 {
	switch t {
	case Port:
		return 0
	case IPPortNet, Net:
		return 2
	default:
		return 1
	}
}

// maxEntries is the limit of a set. It costs nothing until entries come.
const maxEntries = 1 << 20

// Set is a set. Its name has at most 31 bytes.
type Set struct {
	Name   string
	Type   Type
	Family lab.Family
}

// Entry is an element of a set. Which fields count depends on the set's type; the others are zero.
type Entry struct {
	Addr   netip.Addr
	Proto  uint8
	Port   uint16
	Source netip.Prefix
	// Range must have a length: the kernel wants 0.0.0.0/0 as its two halves.
	Range netip.Prefix
	// NoMatch takes a range out of a wider one.
	NoMatch bool
}

// String is the entry as the program ipset writes it.
func (e Entry) String() string {
	switch {
	case e.Range.IsValid() && e.NoMatch:
		return e.Range.String() + " nomatch"
	case e.Range.IsSingleIP():
		return e.Range.Addr().String()
	case e.Range.IsValid():
		return e.Range.String()
	case !e.Addr.IsValid():
		return fmt.Sprint(e.Port)
	case e.Port == 0:
		return e.Addr.String()
	case !e.Source.IsValid():
		return fmt.Sprintf("%s,%s:%d", e.Addr, protoName(e.Proto), e.Port)
	case e.Source.IsSingleIP():
		return fmt.Sprintf("%s,%s:%d,%s", e.Addr, protoName(e.Proto), e.Port, e.Source.Addr())
	default:
		return fmt.Sprintf("%s,%s:%d,%s", e.Addr, protoName(e.Proto), e.Port, e.Source)
	}
}

func protoName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	default:
		return fmt.Sprint(p)
	}
}

// Conn speaks to the sets of one namespace. Its methods may be called concurrently.
type Conn struct {
	ns   *netns.NS
	conn *netlink.Conn
}

// Dial opens the sets of a namespace.
func Dial(ns *netns.NS) (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return nil, fmt.Errorf("%s: open IP sets: %w", ns.Name(), err)
	}
	return &Conn{ns: ns, conn: c}, nil
}

// Close ends the connection. The sets stay.
func (c *Conn) Close() error { return c.conn.Close() }

// Create makes a set, unless it is there already. One of the same name that holds something else is an error.
func (c *Conn) Create(s Set) error {
	err := c.do(cmdCreate, netlink.Excl, createAttributes(s))
	if errors.Is(err, unix.EEXIST) {
		// It may have been made with other limits; what counts is what it holds.
		var header *header
		if header, err = c.header(s.Name); err == nil && header.holds(s) {
			return nil
		} else if err == nil {
			err = fmt.Errorf("there is one of type %s", header.typ)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: create set %s: %w", c.ns.Name(), s.Name, err)
	}
	return nil
}

// ErrInUse says that a rule looks at a set. The kernel may go on to say so a while after the last such rule has been
// deleted.
var ErrInUse = errors.New("in use")

// Destroy takes a set away, if it is there. One that a rule looks at is ErrInUse.
func (c *Conn) Destroy(s Set) error {
	err := c.do(cmdDestroy, 0, nameAttribute(s))
	if errors.Is(err, errBusy) {
		err = fmt.Errorf("%w: %w", ErrInUse, err)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: destroy set %s: %w", c.ns.Name(), s.Name, err)
	}
	return nil
}

// batch is how many entries a message holds. The limit is 64 KiB for the attribute that holds them all, and an entry
// takes at most 80 bytes.
const batch = 500

// Add puts entries into a set. One that is there already does no harm.
func (c *Conn) Add(s Set, entries ...Entry) error { return c.change(cmdAdd, "add to", s, entries) }

// Delete takes entries out of a set. One that is not there does no harm.
func (c *Conn) Delete(s Set, entries ...Entry) error {
	return c.change(cmdDel, "delete from", s, entries)
}

func (c *Conn) change(cmd uint8, verb string, s Set, entries []Entry) error {
	for part := range slices.Chunk(entries, batch) {
		if err := c.do(cmd, 0, entryAttributes(s, part)); err != nil {
			return fmt.Errorf("%s: %s set %s: %w", c.ns.Name(), verb, s.Name, err)
		}
	}
	return nil
}

// Names lists the sets whose names begin so.
func (c *Conn) Names(prefix string) ([]string, error) {
	messages, err := c.ask(cmdList, netlink.Dump, func(e *netlink.AttributeEncoder) error {
		e.ByteOrder = binary.BigEndian
		e.Uint32(attrFlags|bigEndian, flagNamesOnly)
		return nil
	})
	var all []string
	for i := 0; err == nil && i < len(messages); i++ {
		var d *netlink.AttributeDecoder
		if d, err = netlink.NewAttributeDecoder(messages[i].Data); err != nil {
			break
		}
		for d.Next() {
			if d.Type() == attrName && strings.HasPrefix(d.String(), prefix) {
				all = append(all, d.String())
			}
		}
		err = d.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list the names of sets: %w", c.ns.Name(), err)
	}
	return all, nil
}

// Entries lists a set; one that does not exist is empty.
func (c *Conn) Entries(s Set) ([]Entry, error) {
	// Asked for a listing of what is not there, the kernel answers more than once.
	if _, err := c.header(s.Name); errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	messages, err := c.ask(cmdList, netlink.Dump, nameAttribute(s))
	var all []Entry
	for i := 0; err == nil && i < len(messages); i++ {
		all, err = appendEntries(all, messages[i].Data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list set %s: %w", c.ns.Name(), s.Name, err)
	}
	return all, nil
}
