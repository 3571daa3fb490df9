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

// place is where a frame was seen.
type place struct {
	name     string
	ethernet bool
}

type placedFrame struct {
	Frame
	place place
}

func collect(captures []*Capture) []placedFrame {
	var all []placedFrame
	for _, c := range captures {
		for _, f := range c.Packets() {
			all = append(all, placedFrame{f, place{c.ns.Name() + "/" + f.Device, f.Ethernet}})
		}
	}
	slices.SortStableFunc(all, func(a, b placedFrame) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all
}

func writePcapng(w io.Writer, frames []placedFrame) error {
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "viplab"}}
	first := place{"none", true} // the writer requires an interface even for an empty file
	if len(frames) > 0 {
		first = frames[0].place
	}
	out, err := pcapgo.NewNgWriterInterface(w, ngInterface(first), options)
	if err != nil {
		return err
	}
	ids := map[place]int{first: 0}
	for _, f := range frames {
		id, known := ids[f.place]
		if !known {
			if id, err = out.AddInterface(ngInterface(f.place)); err != nil {
				return err
			}
			ids[f.place] = id
		}
		info := gopacket.CaptureInfo{
			Timestamp: f.At, CaptureLength: len(f.Data), Length: len(f.Data), InterfaceIndex: id,
		}
		if err := out.WritePacketWithOptions(info, f.Data, ngOptions(f.Frame)); err != nil {
			return err
		}
	}
	return out.Flush()
}

func ngInterface(p place) pcapgo.NgInterface {
	link := layers.LinkTypeRaw
	if p.ethernet {
		link = layers.LinkTypeEthernet
	}
	return pcapgo.NgInterface{Name: p.name, LinkType: link, TimestampResolution: 9}
}

func ngOptions(f Frame) pcapgo.NgPacketOptions {
	flags := &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
	switch f.Direction {
	case Out:
		flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
	case Other:
		flags.Reception = pcapgo.NgEpbFlagReceptionTypePromiscuous
	}
	return pcapgo.NgPacketOptions{Flags: flags}
}
