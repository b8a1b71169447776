// One plot over time, drawn by uPlot in the page's colours.

import { Component, createRef, html } from "./dom.js";

const HEIGHT = 180;

// props: title; labels and colours of the series, colours being names of properties; data, [times, ...values];
// format(value); bars, if each value is a sum and not a line.
export class Plot extends Component {
  constructor() {
    super();
    this.box = createRef();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.draw = () => this.redraw();
  }

  componentDidMount() {
    this.observer = new ResizeObserver(() => this.chart && this.chart.setSize({ width: this.width(), height: HEIGHT }));
    this.observer.observe(this.box.current);
    this.scheme.addEventListener("change", this.draw);
    this.redraw();
  }

  componentDidUpdate(before) {
    if (before.data !== this.props.data) this.redraw();
  }

  componentWillUnmount() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.draw);
    this.mounted = false;
    if (this.chart) this.chart.destroy();
  }

  width() {
    return Math.max(200, this.box.current.clientWidth);
  }

  async redraw() {
    this.mounted = true;
    const { default: uPlot } = await import("./vendor/uPlot.esm.js");
    if (!this.mounted) return;
    if (this.chart) this.chart.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const { labels, colours, data, format, bars } = this.props;
    // Days where there is room for no more, and the day below midnight.
    const timeTexts = (_, times, _axis, _space, step) => times.map((at) => {
      const time = new Date(at * 1000).toLocaleString("sv");
      return step >= 86400 ? time.slice(5, 10) : time.slice(11, 16) + (time.slice(11, 16) === "00:00" ? `\n${time.slice(5, 10)}` : "");
    });
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const paths = bars ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined;
    const step = data[0].length > 1 ? data[0][1] - data[0][0] : 3600; // half of a bar is on each side of its time
    const options = {
      width: this.width(),
      height: HEIGHT,
      cursor: { y: false },
      legend: { live: true },
      scales: { x: { range: (_, first, last) => [first - step / 2, last + step / 2] }, y: { range: (_, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, values: timeTexts }, { ...axis, size: 62, values: (_, values) => values.map(format) }],
      series: [
        { label: "at", value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleString("sv").slice(0, 16)) },
        ...labels.map((label, index) => ({
          label,
          stroke: colour(colours[index]),
          fill: bars ? colour(colours[index]) : undefined,
          width: bars ? 0 : 1.5,
          paths,
          points: { show: !bars, size: 5, fill: colour(colours[index]), filter: () => alone(data[index + 1]) },
          value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
        })),
      ],
    };
    this.chart = new uPlot(options, data, this.box.current);
  }

  render({ title }) {
    return html`<figure class="plot"><figcaption>${title}</figcaption><div ref=${this.box}></div></figure>`;
  }
}

// The places of values without a neighbour, which no line shows.
export function alone(values) {
  const isThere = (index) => values[index] !== null && values[index] !== undefined;
  return [...values.keys()].filter((index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1));
}
