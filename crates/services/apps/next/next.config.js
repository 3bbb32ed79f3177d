module.exports = {
  generateEtags: true,
  async headers() {
    const lifetime = (seconds) => [{ key: "Cache-Control", value: `public, max-age=${seconds}` }];
    return [
      { source: "/static/photo.bin", headers: lifetime(60) },
      { source: "/static/style.css", headers: lifetime(1) },
    ];
  },
};
