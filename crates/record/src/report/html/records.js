// The list of records: a filter, and how many are chosen. Without scripts the form works as well.
"use strict";

(() => {
  const rows = [...document.querySelectorAll("#records tbody tr")];
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    rows.forEach((row) => {
      const text = row.innerText.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
  });
  const boxes = [...document.querySelectorAll("#records input")];
  const show = () => {
    const count = boxes.filter((box) => box.checked).length;
    document.getElementById("overlay").disabled = count < 2 || count > 5;
    document.getElementById("chosen").textContent = count ? `${count} chosen, of two to five` : "choose two to five";
  };
  boxes.forEach((box) => box.addEventListener("change", show));
  show();
})();
