// SPDX-License-Identifier: Apache-2.0

// Package ipset programs the kernel's IP sets over netlink (linux/netfilter/ipset/ip_set.h), with many entries in one
// message.
package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// Type is the type of a set.
type Type string

// The types in use, with the fields of their entries.
const (
	IP        Type = "hash:ip"          // Addr
	IPPort    Type = "hash:ip,port"     // Addr, Proto, Port
	IPPortIP  Type = "hash:ip,port,ip"  // Addr, Proto, Port, and Source, a single address
	IPPortNet Type = "hash:ip,port,net" // Addr, Proto, Port, and Source
	Net       Type = "hash:net"         // Range, and NoMatch
	Port      Type = "bitmap:port"      // Port; such a set has no family
)

// revision returns the oldest revision of the type that has the features in use.
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

// maxEntries is the limit of a set. Unused entries cost nothing.
const maxEntries = 1 << 20

// Set is a set. Its name has at most 31 bytes.
type Set struct {
	Name   string
	Type   Type
	Family lab.Family
	// Timeout is how long an entry stays, in whole seconds. Zero is for a set whose entries stay.
	Timeout time.Duration
	// Buckets is the size of the hash table, a power of two. Zero is for the kernel's default. A bucket takes 12 entries,
	// and the kernel enlarges the table only for entries that programs add, not for those that rules add.
	Buckets int
}

// Protocols are the numbers of protocols in entries.
var Protocols = map[corev1.Protocol]uint8{
	corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP, corev1.ProtocolSCTP: unix.IPPROTO_SCTP,
}

// Entry is an element of a set. The set's type decides which fields it has; the others are zero.
type Entry struct {
	Addr   netip.Addr
	Proto  uint8
	Port   uint16
	Source netip.Prefix
	// Range is not the range of all addresses: the kernel accepts only the two halves of that.
	Range netip.Prefix
	// NoMatch excludes the range from a wider one.
	NoMatch bool
	// Timeout is how long the entry still stays, in whole seconds. Zero is for the timeout of the set.
	Timeout time.Duration
}

// String returns the entry as the program ipset writes it.
func (e Entry) String() string {
	switch {
	case e.Range.IsValid() && e.NoMatch:
		return e.Range.String() + " nomatch"
	case e.Range.IsValid():
		return plain(e.Range)
	case !e.Addr.IsValid():
		return fmt.Sprint(e.Port)
	case e.Port == 0:
		return e.Addr.String()
	}
	proto := fmt.Sprint(e.Proto)
	for name, number := range Protocols {
		if number == e.Proto {
			proto = strings.ToLower(string(name))
		}
	}
	text := fmt.Sprintf("%s,%s:%d", e.Addr, proto, e.Port)
	if e.Source.IsValid() {
		text += "," + plain(e.Source)
	}
	return text
}

// plain writes a range, without its length if it is a single address.
func plain(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Conn is a connection to the sets of one namespace. It is safe for concurrent use.
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

// Create makes a set, unless it exists. A set of the same name but another type or family is an error.
func (c *Conn) Create(s Set) error {
	err := c.do(cmdCreate, netlink.Excl, createAttributes(s))
	if errors.Is(err, unix.EEXIST) {
		// It may have other limits, but must have the same type and family.
		var found header
		if found, err = c.header(s.Name); err == nil && found != (header{s.Type, s.family()}) {
			err = fmt.Errorf("there is one of type %s", found.typ)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: create set %s: %w", c.ns.Name(), s.Name, err)
	}
	return nil
}

// ErrInUse means that a rule uses a set, or that a program is listing it. The kernel may report it for a while after
// the last such rule was deleted.
var ErrInUse = errors.New("in use")

// Destroy removes a set, if it exists. It returns ErrInUse if the set is in use.
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

// mostPatience is how long the kernel may take to free deleted rules, on the slowest machine.
const mostPatience = 10 * time.Second

// DestroyAll removes the sets of these names, if they exist. It waits for sets that are in use: the kernel frees
// deleted rules after a grace period of RCU, for which there is no event. It returns ErrInUse if a set is in use for
// ten seconds, or when the context ends. It removes the other sets nevertheless.
func (c *Conn) DestroyAll(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, mostPatience)
	defer cancel()
	var errs []error
	for _, name := range names {
		inUse := observe.Await(ctx, nil, func(context.Context) error {
			err := c.Destroy(Set{Name: name})
			if errors.Is(err, ErrInUse) {
				return err
			}
			errs = append(errs, err)
			return nil
		})
		errs = append(errs, inUse)
	}
	return errors.Join(errs...)
}

// batch is the number of entries in a message. The attribute with all of them has at most 64 KiB, and an entry takes up
// to 80 bytes.
const batch = 500

// Add adds entries to a set. It ignores those that exist.
func (c *Conn) Add(s Set, entries ...Entry) error { return c.change(cmdAdd, "add to", s, entries) }

// Delete removes entries from a set. It ignores those that do not exist.
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

// Flush removes all entries from a set.
func (c *Conn) Flush(s Set) error {
	if err := c.do(cmdFlush, 0, nameAttribute(s)); err != nil {
		return fmt.Errorf("%s: flush set %s: %w", c.ns.Name(), s.Name, err)
	}
	return nil
}

// Swap exchanges the entries and limits of two sets at once. Rules keep to the names.
func (c *Conn) Swap(a, b Set) error {
	err := c.do(cmdSwap, 0, func(e *netlink.AttributeEncoder) error {
		e.String(attrName, a.Name)
		e.String(attrOther, b.Name)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: swap sets %s and %s: %w", c.ns.Name(), a.Name, b.Name, err)
	}
	return nil
}

// Names returns the names of sets with a prefix.
func (c *Conn) Names(prefix string) (all []string, err error) {
	err = c.list(cmdList, netlink.Dump, listing(flagNamesOnly), func(d *netlink.AttributeDecoder) {
		if d.Type() == attrName && strings.HasPrefix(d.String(), prefix) {
			all = append(all, d.String())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: list the names of sets: %w", c.ns.Name(), err)
	}
	return all, nil
}

// Timeouts returns the timeouts of sets with a prefix, by name.
func (c *Conn) Timeouts(prefix string) (map[string]time.Duration, error) {
	all, name := map[string]time.Duration{}, ""
	err := c.list(cmdList, netlink.Dump, listing(flagHeadersOnly), func(d *netlink.AttributeDecoder) {
		switch d.Type() {
		case attrName:
			name = d.String()
		case attrData:
			if strings.HasPrefix(name, prefix) {
				d.Nested(func(d *netlink.AttributeDecoder) error {
					all[name] = decodeTimeout(d)
					return nil
				})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: list the timeouts of sets: %w", c.ns.Name(), err)
	}
	return all, nil
}

// listing requests all sets, and only some of their attributes.
func listing(flags uint32) encode {
	return func(e *netlink.AttributeEncoder) error {
		e.ByteOrder = binary.BigEndian
		e.Uint32(attrFlags|bigEndian, flags)
		return nil
	}
}

// Entries returns the entries of a set. A set that does not exist has none.
func (c *Conn) Entries(s Set) (all []Entry, err error) {
	// The kernel answers more than once if the set to be listed does not exist.
	if _, err := c.header(s.Name); errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	err = c.list(cmdList, netlink.Dump, nameAttribute(s), func(d *netlink.AttributeDecoder) {
		if d.Type() == attrEntries {
			all = append(all, decodeEntries(d)...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: list set %s: %w", c.ns.Name(), s.Name, err)
	}
	return all, nil
}
