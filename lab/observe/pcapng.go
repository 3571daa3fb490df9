// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// WritePcapng writes what captures have recorded so far, by time, with an interface for each device ("n1/eth0").
func WritePcapng(w io.Writer, captures ...*Capture) error {
	if err := writePcapng(w, collect(captures)); err != nil {
		return fmt.Errorf("write pcapng: %w", err)
	}
	return nil
}

// CommentedFrame is a frame with a comment, for WriteCommentedPcapng.
type CommentedFrame struct {
	Frame
	Namespace string // the interface is "namespace/device"
	// Length is how many bytes the packet had, of which Data may have only the first. 0 means as many as Data has.
	Length  int
	Comment string // may have lines; empty for none
}

// WriteCommentedPcapng writes frames in their order. Programs such as Wireshark show the comments with the packets.
func WriteCommentedPcapng(w io.Writer, frames []CommentedFrame) error {
	all := make([]placedFrame, len(frames))
	for i, f := range frames {
		all[i] = placed(f.Namespace, f.Frame)
		all[i].length = max(f.Length, len(f.Data))
		if f.Comment != "" {
			all[i].comments = []string{f.Comment}
		}
	}
	if err := writePcapng(w, all); err != nil {
		return fmt.Errorf("write pcapng: %w", err)
	}
	return nil
}

// place is where a frame was seen.
type place struct {
	name     string
	ethernet bool
}

type placedFrame struct {
	Frame
	place    place
	length   int // of the packet, of which Data may have only the first bytes
	comments []string
}

func placed(namespace string, f Frame) placedFrame {
	return placedFrame{Frame: f, place: place{namespace + "/" + f.Device, f.Ethernet}, length: len(f.Data)}
}

func collect(captures []*Capture) []placedFrame {
	var all []placedFrame
	for _, c := range captures {
		for _, f := range c.Packets() {
			all = append(all, placed(c.ns.Name(), f))
		}
	}
	slices.SortStableFunc(all, func(a, b placedFrame) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all
}

func writePcapng(w io.Writer, frames []placedFrame) error {
	out := NewPcapngWriter(w)
	if len(frames) == 0 {
		return out.begin(place{"none", true}) // the format requires an interface even for an empty file
	}
	for _, f := range frames {
		if err := out.write(f); err != nil {
			return err
		}
	}
	return out.out.Flush()
}

// PcapngWriter writes frames as they come, for a reader that follows.
type PcapngWriter struct {
	w   io.Writer
	out *pcapgo.NgWriter // nil before the first frame
	ids map[place]int
}

// NewPcapngWriter returns a writer of a new file.
func NewPcapngWriter(w io.Writer) *PcapngWriter { return &PcapngWriter{w: w, ids: map[place]int{}} }

// Write writes frames of a namespace, in their order. An interface of the file has the name "namespace/device".
func (p *PcapngWriter) Write(namespace string, frames ...Frame) error {
	for _, f := range frames {
		if err := p.write(placed(namespace, f)); err != nil {
			return err
		}
	}
	if p.out == nil {
		return nil
	}
	return p.out.Flush()
}

// begin writes the head of the file with its first interface.
func (p *PcapngWriter) begin(first place) (err error) {
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "viplab"}}
	if p.out, err = pcapgo.NewNgWriterInterface(p.w, ngInterface(first), options); err != nil {
		return err
	}
	p.ids[first] = 0
	return p.out.Flush()
}

func (p *PcapngWriter) write(f placedFrame) (err error) {
	if p.out == nil {
		if err := p.begin(f.place); err != nil {
			return err
		}
	}
	id, known := p.ids[f.place]
	if !known {
		if id, err = p.out.AddInterface(ngInterface(f.place)); err != nil {
			return err
		}
		p.ids[f.place] = id
	}
	info := gopacket.CaptureInfo{
		Timestamp: f.At, CaptureLength: len(f.Data), Length: f.length, InterfaceIndex: id,
	}
	return p.out.WritePacketWithOptions(info, f.Data, ngOptions(f))
}

func ngInterface(p place) pcapgo.NgInterface {
	link := layers.LinkTypeRaw
	if p.ethernet {
		link = layers.LinkTypeEthernet
	}
	return pcapgo.NgInterface{Name: p.name, LinkType: link, TimestampResolution: 9}
}

func ngOptions(f placedFrame) pcapgo.NgPacketOptions {
	flags := &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
	switch f.Direction {
	case Out:
		flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
	case Other:
		flags.Reception = pcapgo.NgEpbFlagReceptionTypePromiscuous
	}
	return pcapgo.NgPacketOptions{Flags: flags, Comments: f.comments}
}
